"""The family `gym`: environments of Gymnasium."""
