"""Reading the YAML file of `worldloom serve --cogment FILE`."""
