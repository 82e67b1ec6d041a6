#!/usr/bin/env bash
# Node, headless Chromium (Debian's packages, where the machine has none), and what drives it, into the folder $1.
set -euo pipefail
needed=()
command -v npm > /dev/null || needed+=(nodejs npm)
command -v chromium-headless-shell > /dev/null || command -v chromium > /dev/null || needed+=(chromium-headless-shell)
if ((${#needed[@]})); then
    as_root=()
    ((EUID == 0)) || as_root=(sudo)
    "${as_root[@]}" apt-get update --quiet=2
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install --quiet=2 --yes --no-install-recommends \
        "${needed[@]}" fonts-dejavu-core > /dev/null
fi
mkdir -p "$1"
cp "$(dirname "$0")"/package*.json "$1"
npm ci --prefix "$1" --no-audit --no-fund --loglevel=error
touch "$1/installed"
