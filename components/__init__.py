"""Kubeflow Pipelines components, one folder each; import a component from its own folder.

Every component is a border: it parses what KFP hands over, calls the library and writes what KFP expects.
"""
