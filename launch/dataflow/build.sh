#!/usr/bin/env bash
# Builds an image and a Flex Template for each command.
set -euo pipefail

usage() {
    cat <<'USAGE'
launch/dataflow/build.sh --project PROJECT --images REGION-docker.pkg.dev/PROJECT/REPOSITORY --temp gs://BUCKET [OPTION…]

Builds the wheel, an image for each command, and the templates gs://BUCKET/templates/coco.json, folder.json, embed.json, table.json and verify.json.

  --project PROJECT     the project that builds
  --images PLACE        a repository of Artifact Registry
  --temp gs://BUCKET    for the source of the build (build/) and for templates (templates/); a folder in it will do
  --tag TAG             of the images (default: date and commit)
  --build-service-account EMAIL
                        builds as this account; without it Cloud Build takes one that new projects give no role
  --service-account EMAIL, --subnetwork URL
                        of jobs for which run.sh, a DAG or a form says no other; with a subnetwork, which needs Private
                        Google Access, workers have no public addresses
  --launcher-tag TAG    of Google's launcher image (default: latest)
  --python PROGRAM      Python with pip that builds the wheel (default: python3)
  --local               build and push with docker on this machine, rather than with Cloud Build
  --dry-run             print the commands, and build nothing
USAGE
}

fail() {
    echo "build.sh: $1 (--help lists the options)" >&2
    exit 2
}

# Runs a command, or prints it as it could be typed.
run() {
    if [ "$dry_run" = yes ]; then
        printf '%q ' "$@"
        echo
    else
        "$@"
    fi
}

project="" images="" temp="" tag="" build_account="" account="" subnetwork=""
launcher_tag=latest python=python3 local=no dry_run=no
while [ $# -gt 0 ]; do
    case $1 in
        --help | -h) usage; exit 0 ;;
        --local) local=yes; shift; continue ;;
        --dry-run) dry_run=yes; shift; continue ;;
        --project | --images | --temp | --tag | --build-service-account | --launcher-tag | --python) ;;
        --service-account | --subnetwork) ;;
        *) fail "unknown option $1" ;;
    esac
    if [ $# -lt 2 ] || [ -z "$2" ]; then fail "$1 needs a value"; fi
    case $1 in
        --project) project=$2 ;;
        --images) images=${2%/} ;;
        --temp) temp=${2%/} ;;
        --tag) tag=$2 ;;
        --build-service-account) build_account=$2 ;;
        --service-account) account=$2 ;;
        --subnetwork) subnetwork=$2 ;;
        --launcher-tag) launcher_tag=$2 ;;
        --python) python=$2 ;;
    esac
    shift 2
done

[ -n "$project" ] || fail "--project is missing"
[ -n "$images" ] || fail "--images is missing"
[ -n "$temp" ] || fail "--temp is missing"
[[ $temp =~ ^gs://[a-z0-9][a-z0-9._-]+(/[^,]*)?$ ]] || fail "--temp $temp is no gs://BUCKET"
[[ $images =~ ^[a-z0-9.:-]+(/[a-z0-9._-]+)+$ ]] || fail "--images $images is no repository of images"

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
if [ -z "$tag" ]; then
    tag=$(date -u +%Y%m%d-%H%M%S)
    if commit=$(git -C "$root" rev-parse --short HEAD 2>/dev/null); then tag=$tag-$commit; fi
fi
[[ $tag =~ ^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$ ]] || fail "--tag $tag is no tag"
[[ $launcher_tag =~ ^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$ ]] || fail "--launcher-tag $launcher_tag is no tag"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# What the image is built from, in $scratch/context. The wheel is built from a copy: setuptools leaves what it has built
# beside its source, and packs it again the next time.
make_context() {
    mkdir "$scratch/source" "$scratch/context"
    cp "$root/setup.py" "$root/pyproject.toml" "$scratch/source"
    cp -R "$root/recordmill" "$root/schemas" "$root/transforms" "$root/pipelines" "$root/launch" "$scratch/source"
    "$python" -m pip wheel --quiet --no-deps --wheel-dir "$scratch/context" "$scratch/source"
    cp "$here/Dockerfile" "$here/cloudbuild.yaml" "$here/main.py" "$root/constraints.txt" "$scratch/context"

    # What the wheel requires, so that it is installed in a layer of its own, which stays while only our code changes.
    "$python" - "$scratch"/context/*.whl >"$scratch/context/requirements.txt" <<'PYTHON'
import email
import sys
import zipfile

with zipfile.ZipFile(sys.argv[1]) as wheel:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    required = email.message_from_bytes(wheel.read(name)).get_all("Requires-Dist", [])
print(*(line for line in required if "extra ==" not in line), sep="\n")
PYTHON
}

if [ "$dry_run" = no ]; then make_context; fi

if [ "$local" = yes ]; then
    for command in coco folder embed table verify; do
        image=$images/recordmill-$command:$tag
        run docker build --platform=linux/amd64 --build-arg="COMMAND=$command" --build-arg="IMAGE=$image" \
            --build-arg="LAUNCHER_TAG=$launcher_tag" --tag="$image" "$scratch/context"
        run docker push "$image"
    done
else
    as=()
    if [ -n "$build_account" ]; then as=(--service-account="projects/$project/serviceAccounts/$build_account"); fi
    run gcloud builds submit "$scratch/context" --project="$project" --config="$scratch/context/cloudbuild.yaml" \
        --gcs-source-staging-dir="$temp/build" ${as[@]+"${as[@]}"} \
        --substitutions="_IMAGES=$images,_TAG=$tag,_LAUNCHER_TAG=$launcher_tag"
fi

# A job that is started by a form, or by another program, has no limits of its own, and a bucket that the service makes.
defaults=(
    --worker-machine-type=e2-standard-2
    --max-workers=20
    --temp-location="$temp/temp"
    --staging-location="$temp/staging"
)
[ -z "$account" ] || defaults+=(--service-account-email="$account")
[ -z "$subnetwork" ] || defaults+=(--subnetwork="$subnetwork" --disable-public-ips)
for command in coco folder embed table verify; do
    run gcloud dataflow flex-template build "$temp/templates/$command.json" --project="$project" \
        --image="$images/recordmill-$command:$tag" --sdk-language=PYTHON --metadata-file="$here/$command.json" \
        "${defaults[@]}"
done

echo "Images: $images/recordmill-coco:$tag, recordmill-folder:$tag, recordmill-embed:$tag, recordmill-table:$tag and recordmill-verify:$tag" >&2
echo "Templates: coco.json, folder.json, embed.json, table.json and verify.json in $temp/templates; launch/dataflow/run.sh runs them" >&2
