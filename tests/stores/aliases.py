"""Runs in MLflow's environment: lets an alias name a version, or none; or deletes a version.

Arguments: the registered model's name and an alias, and the version that it shall name; or the name, `--delete` and a version.
"""

import json
import sys

import mlflow

name, alias, *version = sys.argv[1:]
client = mlflow.MlflowClient()
if alias == "--delete":
    client.delete_model_version(name, version[0])
elif version:
    client.set_registered_model_alias(name, alias, version[0])
else:
    client.delete_registered_model_alias(name, alias)
print(json.dumps(client.get_registered_model(name).aliases))
