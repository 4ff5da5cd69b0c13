#!/bin/sh
# EpilogSlurmctld=/opt/costguard/costguard_slurm/costguard-epilog.sh. The settings: /etc/costguard/slurm.env, readable by SlurmUser alone.
set -a; . /etc/costguard/slurm.env; set +a
PYTHONPATH=/opt/costguard exec python3 -m costguard_slurm epilog
