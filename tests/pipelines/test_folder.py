from recordmill.pipelines.folder import _adopt_labels
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.labels import ExistingLabels, LabelMap
from recordmill.transforms.dataset.facts import FactsBuilder


def test_adopt_labels():
    labels = LabelMap((Category(0, "ant"), Category(1, "cat")))
    existing = ExistingLabels(LabelMap((Category(0, "ant"), Category(1, "bee"), Category(2, "cat"))), "train of out")
    facts = FactsBuilder()
    assert list(_adopt_labels(labels, facts, existing, (), ("val", "test"))) == [existing.labels]
    warning = "no example is of 'bee'; labels are those of train of out"
    assert facts.build().warnings == {("val", warning), ("test", warning)}
    facts = FactsBuilder()
    assert list(_adopt_labels(labels, facts, None, (), ("val",))) == [labels]
    assert not facts.build().warnings
