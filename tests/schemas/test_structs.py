import importlib
import pkgutil

import msgspec

from recordmill import schemas


def test_structs_are_frozen():
    names = [each.name for each in pkgutil.walk_packages(schemas.__path__, f"{schemas.__name__}.")]
    modules = map(importlib.import_module, names)
    found = {value for module in modules for value in vars(module).values() if isinstance(value, type)}
    structs = {
        each for each in found if issubclass(each, msgspec.Struct) and each.__module__.startswith(schemas.__name__)
    }
    assert len(structs) > 50
    assert {each.__name__ for each in structs if not each.__struct_config__.frozen} == {"Terms", "_Classes", "_Format"}
