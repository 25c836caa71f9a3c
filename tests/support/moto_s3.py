"""S3 as moto plays it, as the cluster's demo has it too."""

from __future__ import annotations

from diskless_core.cli.cluster_demo.s3_server import moto_s3

__all__ = ["moto_s3"]
