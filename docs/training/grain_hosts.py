"""Read batches on several hosts with Grain, a part on each, from the data set in the folder `out`."""

import grain
import numpy as np
from PIL import Image

import recordmill

SIZE, BATCH = 224, 256

train = recordmill.open("out")["train"]
host, hosts = 0, 1


def prepare(example):
    image = Image.fromarray(example["image"]).resize((SIZE, SIZE))
    return {"image": np.asarray(image), "image_id": example["image_id"]}


source = train.grain()
examples = grain.MapDataset.source(source).shuffle(seed=0).repeat().map(prepare)
batches = grain.experimental.ElasticIterator(examples, BATCH, grain.sharding.ShardOptions(host, hosts))
