#!/usr/bin/env bash
# Debian's PyTorch and torchvision, without CUDA, into the environment $1: 122 MB to fetch, 480 MB there, nothing on the
# system. PyPI's bring 4 GB.
set -euo pipefail
folder=$(realpath "$1")
"$folder/bin/python3" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' && grep -qs '^12' /etc/debian_version || {
    echo "$0: Debian 12's PyTorch wants Python 3.11 and Debian 12: run it there, or make test-consumers with" \
        "CONSUMERS='datumaro jax keras_hub tfds tfrecord', which leaves it out" >&2
    exit 1
}
simulate() { apt-get install --no-install-recommends --simulate python3-torch python3-torchvision; }
simulate > /dev/null || apt-get update --quiet=2
root=$folder/debian
packages=$(mktemp -d)
trap 'rm -rf "$packages"' EXIT
cd "$packages"
# Of what is not installed, less Python's packages, which the environment has, and data.
simulate | sed -n 's/^Inst \([^ ]*\) .*/\1/p' \
    | grep -vxE 'python3-(attr|certifi|chardet|charset-normalizer|dateutil|hypothesis|idna|mpmath|numpy|pil|psutil|requests|sortedcontainers|sympy|typing-extensions|urllib3)|libtorch-test|proj-data|mailcap|mime-support|gdal-.*|.*-common' \
    | xargs apt-get download --quiet=2 2> /dev/null
for package in *.deb; do dpkg -x "$package" "$root"; done
rm -rf "$root/usr/share"
lib=$root/usr/lib
echo "$lib/python3/dist-packages" > "$(echo "$folder"/lib/python3*/site-packages)/debian.pth"
rm "$folder/bin/python"
cat > "$folder/bin/python" <<END
#!/bin/sh
export LD_LIBRARY_PATH=$lib:$lib/x86_64-linux-gnu:$lib/x86_64-linux-gnu/blas:$lib/x86_64-linux-gnu/lapack:$root/lib/x86_64-linux-gnu
exec "$folder/bin/python3" "\$@"
END
chmod +x "$folder/bin/python"
"$folder/bin/python" -c "import torchvision"
