#!/usr/bin/env bash
# Debian's PyTorch and torchvision, with NumPy 1, into the environment $1.
exec "$(dirname "$0")/../../../../tests/consumers/environments/torchvision/install.sh" "$1"
