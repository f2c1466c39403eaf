"""Its files, one for each of the services and what they share."""
