"""Names that stand for an object that cannot be renewed in place stand for the new one."""


def replace_references(pairs, namespaces):
    """pairs: of an old object and its new one. namespaces: the dictionaries to change."""
    new_of = {id(old): new for old, new in pairs}  # an old object may be unhashable
    for namespace in namespaces:
        for name, value in list(namespace.items()):
            if id(value) in new_of:
                namespace[name] = new_of[id(value)]
