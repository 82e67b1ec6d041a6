#!/usr/bin/env bash
# Debian's PyTorch into the environment $1.
exec "$(dirname "$0")/../torchvision/install.sh" "$1"
