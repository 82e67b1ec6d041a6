"""Train torchvision's Faster R-CNN.

docs/training.md has the commands that write its data set.
"""

from itertools import islice

import torch
from torchvision.models.detection import fasterrcnn_mobilenet_v3_large_320_fpn

import recordmill

BATCH, STEPS = 4, 50

data = recordmill.open("detection")


def prepare(pairs):
    return [image / 255 for image, _ in pairs], [target for _, target in pairs]


batches = torch.utils.data.DataLoader(data["train"].torch(), BATCH, shuffle=True, num_workers=2, collate_fn=prepare)
model = fasterrcnn_mobilenet_v3_large_320_fpn(weights=None, weights_backbone=None, num_classes=data.num_classes + 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
history = []
for images, targets in islice(batches, STEPS):
    losses = model(images, targets)
    loss = sum(losses.values())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    history.append(loss.item())
