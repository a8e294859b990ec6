"""The plan document: form, parameters, references, graph, canonical form, diff, amendments."""
