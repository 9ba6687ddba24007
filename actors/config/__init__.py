"""Agent files: YAML → checked values, kept current while a server runs; see ``docs/agents-yaml.md``.

Import from the modules: ``load`` and ``catalog`` are the ways in, ``schema`` has the values.
"""
