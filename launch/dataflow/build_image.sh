#!/usr/bin/env bash
# Builds the image of a command, in the folder that build.sh has made: build_image.sh COMMAND IMAGE
#
# What it is built upon is taken by digest. The first of the images settles which, by the tags of the Dockerfile, and
# writes it to the file bases, a line of NAME=IMAGE@sha256:… each; a file that is there is heeded (build.sh --bases). An
# empty one says that there are none, as where an image is promoted.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

if [ ! -f bases ]; then
    sed -n 's/^ARG \([A-Z]*_IMAGE\)=/\1 /p' Dockerfile >tags
    while read -r name tagged; do
        docker pull --quiet --platform=linux/amd64 "$tagged" >&2
        echo "$name=$(docker image inspect --format='{{index .RepoDigests 0}}' "$tagged")"
    done <tags >bases.new
    mv bases.new bases
fi
arguments=(--platform=linux/amd64 --build-arg="COMMAND=$1" --build-arg="IMAGE=$2" --tag="$2")
if [ -s bases ]; then
    echo "Built upon:" && cat bases
    arguments+=(--label="recordmill.bases=$(paste -sd' ' bases)")
    while read -r base || [ -n "$base" ]; do arguments+=(--build-arg="$base"); done <bases
fi
exec docker build "${arguments[@]}" .
