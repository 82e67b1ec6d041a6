#!/usr/bin/env bash
# Starts a Dataflow job by a template that build.sh has built.
set -euo pipefail

# What docs/performance.md found to do; launch/runners/beam_options.py has the same for jobs that are started without a template.
MACHINE_TYPE=e2-standard-2
# Dataflow's own limit is far higher, and so is what a mistake may cost.
MAX_WORKERS=20

usage() {
    cat <<USAGE
launch/dataflow/run.sh coco|folder|embed|table|verify --project PROJECT --region REGION --temp gs://BUCKET [OPTION…] -- NAME=VALUE …

Starts a job. NAME=VALUE are Recordmill's options with underscores: images=gs://…, instances=gs://…, output=gs://…,
gzip=true; of those that may be repeated, several with commas between them. launch/dataflow/COMMAND.json lists them.

  --project PROJECT          the project that runs it
  --region REGION            where it runs: that of the buckets
  --temp gs://BUCKET         for staged and temporary files (staging/, temp/); a folder in it will do
  --template gs://FILE       the template (default: templates/COMMAND.json in --temp)
  --job-name NAME            (default: of output and splits, so that no second job writes what one is writing)
  --service-account EMAIL    that launcher and workers run as (default: Compute Engine's, which may do much more)
  --as EMAIL                 start the job as this account
  --subnetwork URL           with Private Google Access, as workers have no public addresses:
                             https://www.googleapis.com/compute/v1/projects/…/regions/…/subnetworks/…
  --public-ips               they have; without --subnetwork in the network called default
  --machine-type TYPE        of workers (default: $MACHINE_TYPE)
  --disk-size-gb N           of workers (default: Dataflow decides, 25 GB)
  --launcher-machine-type T  of the machine that makes the job (default: Dataflow decides, 3.75 GB of memory)
  --max-workers N            (default: $MAX_WORKERS)
  --num-workers N            to begin with (default: Dataflow decides)
  --flexrs                   cheaper, and started within six hours
  --label KEY=VALUE          repeatable
  --kms-key KEY              projects/…/locations/…/keyRings/…/cryptoKeys/…
  --experiment TEXT          repeatable
  --dry-run                  print the command
USAGE
}

fail() {
    echo "run.sh: $1 (--help lists the options)" >&2
    exit 2
}

# Joins texts with a delimiter that none of them has, as gcloud takes lists whose values have commas (gcloud topic
# escaping).
joined() {
    local delimiter text
    if [ $# = 0 ]; then return; fi
    for delimiter in ';' '|' '~' '#' '!!'; do
        case "$*" in *"$delimiter"*) continue ;; esac
        printf '^%s^%s' "$delimiter" "$1"
        shift
        for text in "$@"; do printf '%s%s' "$delimiter" "$text"; done
        return
    done
    fail "the values hold all of ; | ~ # !!, and gcloud needs one of them"
}

command="" project="" region="" temp="" template="" job_name="" account="" impersonated="" subnetwork="" kms_key=""
machine_type=$MACHINE_TYPE max_workers=$MAX_WORKERS num_workers="" public_ips=no flexrs=no
dry_run=no disk_size_gb="" launcher_machine_type=""
labels=() experiments=() parameters=()
while [ $# -gt 0 ]; do
    case $1 in
        coco | folder | embed | table | verify)
            [ -z "$command" ] || fail "$command and $1 cannot both be run"
            command=$1
            shift
            continue
            ;;
        --help | -h) usage; exit 0 ;;
        --public-ips) public_ips=yes; shift; continue ;;
        --flexrs) flexrs=yes; shift; continue ;;
        --dry-run) dry_run=yes; shift; continue ;;
        --) shift; parameters=("$@"); break ;;
        --project | --region | --temp | --template | --job-name | --service-account | --as | --subnetwork) ;;
        --machine-type | --launcher-machine-type | --disk-size-gb | --max-workers | --num-workers) ;;
        --label | --kms-key | --experiment) ;;
        *) fail "unknown option $1" ;;
    esac
    if [ $# -lt 2 ] || [ -z "$2" ]; then fail "$1 needs a value"; fi
    case $1 in
        --project) project=$2 ;;
        --region) region=$2 ;;
        --temp) temp=${2%/} ;;
        --template) template=$2 ;;
        --job-name) job_name=$2 ;;
        --service-account) account=$2 ;;
        --as) impersonated=$2 ;;
        --subnetwork) subnetwork=$2 ;;
        --machine-type) machine_type=$2 ;;
        --launcher-machine-type) launcher_machine_type=$2 ;;
        --disk-size-gb) disk_size_gb=$2 ;;
        --max-workers) max_workers=$2 ;;
        --num-workers) num_workers=$2 ;;
        --label) labels+=("$2") ;;
        --kms-key) kms_key=$2 ;;
        --experiment) experiments+=("$2") ;;
    esac
    shift 2
done

[ -n "$command" ] || fail "coco, folder, embed, table or verify is missing"
[ -n "$project" ] || fail "--project is missing"
[ -n "$region" ] || fail "--region is missing"
[[ $region =~ ^[a-z]+-[a-z]+[0-9]+$ ]] || fail "--region $region is no region like europe-west4"
[ -n "$temp" ] || fail "--temp is missing"
for path in "$temp" ${template:+"$template"}; do
    [[ $path =~ ^gs://[a-z0-9][a-z0-9._-]+(/[^,]*)?$ ]] || fail "$path is no gs://BUCKET/FOLDER"
done
[[ $max_workers =~ ^[1-9][0-9]*$ ]] || fail "--max-workers $max_workers is no number"
[[ $num_workers =~ ^([1-9][0-9]*)?$ ]] || fail "--num-workers $num_workers is no number"
if [ -n "$num_workers" ] && [ "$num_workers" -gt "$max_workers" ]; then
    fail "--num-workers $num_workers is more than --max-workers $max_workers"
fi
for machine in "$machine_type" ${launcher_machine_type:+"$launcher_machine_type"}; do
    [[ $machine =~ ^[a-z][a-z0-9]*-[a-z0-9-]+$ ]] || fail "$machine is no machine type like e2-standard-2"
    case $machine in t2a-* | c4a-* | n4a-*) fail "$machine is an ARM machine, and the image is for x86" ;; esac
done
if [ -n "$disk_size_gb" ] && ! [[ $disk_size_gb =~ ^[1-9][0-9]+$ && $disk_size_gb -ge 25 ]]; then
    fail "--disk-size-gb $disk_size_gb is no number of 25 or more, which the image and the system need"
fi
if [ $public_ips = no ] && [ -z "$subnetwork" ]; then
    fail "--subnetwork is missing, one with Private Google Access; or give --public-ips"
fi
for label in ${labels[@]+"${labels[@]}"}; do
    [[ $label =~ ^[a-z][a-z0-9_-]{0,62}=[a-z0-9_-]{0,63}$ ]] || fail "--label $label must be lower-case, as in team=vision"
done
[ ${#parameters[@]} -gt 0 ] || fail "-- and Recordmill's options are missing"
# Rows of a table may be a query's.
case $command in table) needed=(output) ;; verify) needed=(folder) ;; *) needed=(images output) ;; esac
for name in "${needed[@]}"; do
    case " ${parameters[*]}" in *" $name=gs://"*) ;; *) fail "$name=gs://… is missing after --" ;; esac
done
given=" "
for parameter in "${parameters[@]}"; do
    [[ $parameter =~ ^[a-z][a-z_]*=. ]] || fail "$parameter is no NAME=VALUE, with underscores and without --"
    name=${parameter%%=*}
    case $given in *" $name "*) fail "$name is given twice; of several values, put commas between them" ;; esac
    given="$given$name "
done

# Of one name, Dataflow runs one job at a time: those that write the same splits into the same folder have one name, as
# `recordmill … -- --runner=DataflowRunner` names them. To verify changes nothing.
run_name() {
    local parameter output="" split=train
    for parameter in "${parameters[@]}"; do
        case $parameter in output=*) output=${parameter#output=gs://} ;; split=*) split=${parameter#split=} ;; esac
    done
    # shellcheck disable=SC2001
    split=$(sed 's/=[^,]*//g' <<<"$split") # names without their shares
    printf 'recordmill-%s-%s' "$output" "$split" | LC_ALL=C tr '[:upper:]' '[:lower:]' |
        LC_ALL=C sed -E 's/[^a-z0-9]+/-/g' | cut -c -1024 | sed 's/-*$//'
}
if [ -z "$job_name" ] && [ "$command" = verify ]; then job_name=recordmill-verify-$(date -u +%Y%m%d-%H%M%S); fi
job_name=${job_name:-$(run_name)}
[[ $job_name =~ ^[a-z]([-a-z0-9]{0,1022}[a-z0-9])?$ ]] || fail "--job-name $job_name must be lower-case letters, digits, -"

# On lines of their own, as a failure within an array goes by unseen.
given=$(joined "${parameters[@]}")
job_labels=$(joined ${labels[@]+"${labels[@]}"})
job_experiments=$(joined ${experiments[@]+"${experiments[@]}"})

arguments=(
    "$job_name"
    --project="$project"
    --region="$region"
    --template-file-gcs-location="${template:-$temp/templates/$command.json}"
    --temp-location="$temp/temp"
    --staging-location="$temp/staging"
    --worker-machine-type="$machine_type"
    --max-workers="$max_workers"
    --parameters="$given"
)
[ -z "$num_workers" ] || arguments+=(--num-workers="$num_workers")
[ -z "$account" ] || arguments+=(--service-account-email="$account")
[ -z "$impersonated" ] || arguments+=(--impersonate-service-account="$impersonated")
[ -z "$subnetwork" ] || arguments+=(--subnetwork="$subnetwork")
[ -z "$kms_key" ] || arguments+=(--dataflow-kms-key="$kms_key")
[ -z "$launcher_machine_type" ] || arguments+=(--launcher-machine-type="$launcher_machine_type")
[ -z "$disk_size_gb" ] || arguments+=(--additional-pipeline-options="disk_size_gb=$disk_size_gb")
[ $public_ips = yes ] || arguments+=(--disable-public-ips)
[ $flexrs = no ] || arguments+=(--flexrs-goal=COST_OPTIMIZED)
[ -z "$job_labels" ] || arguments+=(--additional-user-labels="$job_labels")
[ -z "$job_experiments" ] || arguments+=(--additional-experiments="$job_experiments")

if [ $dry_run = yes ]; then
    printf '%q ' gcloud dataflow flex-template run "${arguments[@]}"
    echo
else
    exec gcloud dataflow flex-template run "${arguments[@]}"
fi
