#!/usr/bin/env bash
# PyPI's PyTorch and torchvision into the environment $1, 4 GB: RF-DETR wants a newer one than Debian's.
set -euo pipefail
.venv/bin/uv pip install --quiet --python "$1/bin/python" torch torchvision
