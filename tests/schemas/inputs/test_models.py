import pytest

from recordmill.schemas.inputs.models import FeatureModel, ModelChoice, recorded_model

OPTIONS = {
    "feature_shape": ["7", "7", "1280"],
    "input_size": "224x160",
    "layer": "top_activation",
    "layers": 236,
    "model": "efficientnet-b0",
    "pool": "none",
    "preprocess": "keras.applications.efficientnet.preprocess_input",
    "weights": "imagenet",
    "weights_sha256": "ab",
}


@pytest.mark.parametrize(
    ("recorded", "choice"),
    [
        ({}, ModelChoice("efficientnet-b0", "imagenet", "top_activation", "none", (224, 160), "")),
        (
            {"model": "a.keras", "weights": "a.keras", "preprocess": "unit", "pool": "avg"},
            ModelChoice("a.keras", "", "top_activation", "avg", (224, 160), "unit"),
        ),
        (
            {"model": "a.keras", "weights": "b.h5", "preprocess": "none"},
            ModelChoice("a.keras", "b.h5", "top_activation", "none", (224, 160), "none"),
        ),
    ],
)
def test_model_is_known_by_options_of_its_split(recorded, choice):
    options = OPTIONS | recorded
    model = FeatureModel("top_activation", 236, (224, 160), options["preprocess"], (7, 7, 1280), "ab")
    assert recorded_model(options) == (choice, model)
