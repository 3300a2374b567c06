"""One module a file format.

Each has ``recognises(source) -> bool``, by content and never by name, and ``read(source) ->
Contents``. Reading lists what a file holds; the tensors stay in the file until they are asked for.
Neither runs anything of the file, nor raises anything but ``MigrateError``.
"""
