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
  --bases FILE          what images are built upon, by digest: the lines "Built upon" of an earlier build
  --from PLACE          promote the images of --tag in another repository: the same layers, only the place is new
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
bases="" from="" python=python3 local=no dry_run=no
while [ $# -gt 0 ]; do
    case $1 in
        --help | -h) usage; exit 0 ;;
        --local) local=yes; shift; continue ;;
        --dry-run) dry_run=yes; shift; continue ;;
        --project | --images | --temp | --tag | --build-service-account | --bases | --from | --python) ;;
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
        --bases) bases=$2 ;;
        --from) from=${2%/} ;;
        --python) python=$2 ;;
    esac
    shift 2
done

[ -n "$project" ] || fail "--project is missing"
[ -n "$images" ] || fail "--images is missing"
[ -n "$temp" ] || fail "--temp is missing"
[[ $temp =~ ^gs://[a-z0-9][a-z0-9._-]+(/[^,]*)?$ ]] || fail "--temp $temp is no gs://BUCKET"
for place in "$images" ${from:+"$from"}; do
    [[ $place =~ ^[a-z0-9.:-]+(/[a-z0-9._-]+)+$ ]] || fail "$place is no repository of images"
done
if [ -n "$from" ]; then
    [ -n "$tag" ] || fail "--from wants the --tag of what is promoted"
    [ "$from" != "$images" ] || fail "--from $from is where --images are"
    [ -z "$bases" ] || fail "--bases is of images that are built, and --from builds none"
fi

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [ -n "$bases" ]; then
    [ -r "$bases" ] || fail "--bases $bases cannot be read"
    for name in BEAM_IMAGE LAUNCHER_IMAGE PYTHON_IMAGE; do
        grep -q "^$name=.*@sha256:" "$bases" || fail "--bases $bases has no line $name=IMAGE@sha256:…"
    done
fi
root=$(cd "$here/../.." && pwd)
if [ -z "$tag" ]; then
    tag=$(date -u +%Y%m%d-%H%M%S)
    if commit=$(git -C "$root" rev-parse --short HEAD 2>/dev/null); then tag=$tag-$commit; fi
fi
[[ $tag =~ ^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$ ]] || fail "--tag $tag is no tag"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# What the image is built from, in $scratch/context. The wheel is built from a copy: setuptools leaves what it has built
# beside its source, and packs it again the next time.
make_context() {
    mkdir "$scratch/source"
    cp "$root/setup.py" "$root/pyproject.toml" "$scratch/source"
    cp -R "$root/recordmill" "$root/schemas" "$root/transforms" "$root/pipelines" "$root/launch" "$scratch/source"
    "$python" -m pip wheel --quiet --no-deps --wheel-dir "$scratch/context" "$scratch/source"
    cp "$here/Dockerfile" "$here/main.py" "$here"/requirements*.txt "$scratch/context"
    [ -z "$bases" ] || cp "$bases" "$scratch/context/bases"
}

# An image that is there, and where its workers find it.
make_promotion() {
    touch "$scratch/context/bases"
    cat >"$scratch/context/Dockerfile" <<DOCKERFILE
ARG COMMAND
FROM $from/recordmill-\${COMMAND}:$tag
ARG IMAGE
ENV RECORDMILL_IMAGE=\${IMAGE}
DOCKERFILE
}

mkdir "$scratch/context"
cp "$here/cloudbuild.yaml" "$here/build_image.sh" "$scratch/context"
if [ -n "$from" ]; then
    make_promotion
elif [ "$dry_run" = no ]; then
    make_context
fi

if [ "$local" = yes ]; then
    for command in coco folder embed table verify; do
        image=$images/recordmill-$command:$tag
        run "$scratch/context/build_image.sh" "$command" "$image"
        run docker push "$image"
    done
else
    as=()
    if [ -n "$build_account" ]; then as=(--service-account="projects/$project/serviceAccounts/$build_account"); fi
    run gcloud builds submit "$scratch/context" --project="$project" --config="$scratch/context/cloudbuild.yaml" \
        --gcs-source-staging-dir="$temp/build" ${as[@]+"${as[@]}"} --substitutions="_IMAGES=$images,_TAG=$tag"
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
