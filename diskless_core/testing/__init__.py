"""What tests of backends are made of: the contract suites, and fakes of every noun. PYTEST_DONT_REWRITE (this file)

Under pytest, a failed assertion of a suite shows the values that it compared.
"""

from __future__ import annotations

import sys

if "pytest" in sys.modules:
    import pytest

    pytest.register_assert_rewrite(__name__)
