"""Recordmill's distribution: ranges here, pins in constraints.txt."""

from pathlib import Path

from setuptools import find_packages, setup

STORAGE = ["google-cloud-storage>=3.2,<4"]
FSSPEC = ["fsspec>=2024.6", "s3fs>=2024.6"]
BEAM_VERSIONS = ">=2.70,<3"
ARROW = ["pyarrow>=16"]
ARRAY_RECORD = ["array_record>=0.8.1,<1"]
TENSORFLOW = ["tensorflow>=2.19,<3"]
GCP = [f"apache-beam[gcp]{BEAM_VERSIONS}", *ARROW, *STORAGE]

# The folders keep their places at the top, and recordmill/ has links to them: `schemas` or `launch` alone are names
# that half of all projects have.
setup(
    name="recordmill",
    version="0.1.0",
    description="Data sets of images and labels (COCO first) become sharded TFRecord files, with Apache Beam",
    license="Apache-2.0",
    python_requires=">=3.10",
    packages=find_packages(str(Path(__file__).parent), include=["recordmill", "recordmill.*"]),
    package_dir={"": "."},
    package_data={
        "recordmill": ["py.typed"],
        "recordmill.transforms.insight": ["page.html"],
    },
    # What the readers and the verbs without a pipeline need, on local files.
    install_requires=[
        "annotated-types>=0.6,<1",
        "defusedxml>=0.7.1,<1",
        "google-crc32c>=1.5,<2",
        "isal>=1.7,<2",
        "jinja2>=3.1.5,<4",
        "markupsafe>=2.1,<4",
        "msgspec>=0.19,<1",
        "numpy>=1.26,<3",
        "protobuf>=4.25,<8",
        "pillow>=11,<13",
        "pycocotools>=2.0.8,<3",
        "pydantic>=2.11,<3",
        "pyyaml>=6,<7",
        "regex>=2024.4.16",
        "rich>=13.7,<16",
        "simplejpeg>=1.8,<2",
        "typing-extensions>=4.12",
    ],
    extras_require={
        "gs": STORAGE,  # gs:// paths
        "fsspec": FSSPEC,  # s3:// paths
        "parquet": ARROW,  # --container parquet
        "arrayrecord": ARRAY_RECORD,  # --container arrayrecord
        "beam": [f"apache-beam{BEAM_VERSIONS}", *ARROW],  # pipelines: converting verbs, verify, extract
        "gcp": GCP,  # pipelines on gs:// paths and on Dataflow
        "tensorflow": TENSORFLOW,  # embed, verify with TensorFlow's decoder, tf.data
        "all": [*GCP, *FSSPEC, *TENSORFLOW, *ARRAY_RECORD],
        "dev": [
            "flask-cors>=5",  # moto's server
            "hypothesis>=6.100",
            "kubernetes-validate>=1.30",
            "moto[s3]>=5",
            "mypy>=1.13",
            "pytest>=8",
            "pytest-xdist>=3.6",
            "ruff>=0.8",
            "scikit-learn>=1.5",
            "uv>=0.9",
            "werkzeug>=3",  # moto's server
            # With Python 3.10 its tensorflow-metadata wants an older protobuf than Beam's proto-plus.
            "tensorflow-datasets>=4.9.7; python_version >= '3.11'",
        ],
    },
    entry_points={"console_scripts": ["recordmill = recordmill.launch.cli:command"]},
)
