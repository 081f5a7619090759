"""`millstream dashboards`: writes the Grafana dashboards and the Prometheus rules, which come with Millstream."""

import argparse
import shutil
from pathlib import Path

from millstream.consumers.cli.new_folder import new_folder
from millstream.consumers.shipped import shipped

WRITTEN = {
    "grafana/dashboards": "dashboards: import the files, or provision the folder",
    "grafana/provisioning": "examples that provision Grafana with the dashboards and a data source",
    "prometheus": "recording.yml and alerts.yml: add both to `rule_files`; prometheus.yml: an example of the scrape jobs",
}


def run(args: argparse.Namespace) -> int:
    """Copy the files, and say what they are for."""
    folder: Path = args.output
    with new_folder(folder):
        for part in WRITTEN:
            shutil.copytree(shipped("deploy") / part, folder / part)
    for part, purpose in WRITTEN.items():
        print(f"{folder / part}: {purpose}")
    print("`millstream docs dashboards` says how to use them.")
    return 0
