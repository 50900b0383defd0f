"""Lets torchvision's CUDA-linked wheel be imported beside a CPU build of torch; `make_env.sh` installs it.

Its `_C.so` cannot be loaded there, so the operators that its Python part names while it is imported are declared here
first, without code: vLLM needs `torchvision.transforms` and never calls them. Torch is not imported before that.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_DECLARED = []  # a torch Library withdraws what it declared when it is collected


class _BeforeTorchvision(MetaPathFinder):
    """Declares the operators when torchvision is looked for the first time, and finds nothing itself."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "torchvision":
            sys.meta_path.remove(self)
            import torch

            library = torch.library.Library("torchvision", "DEF")
            library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            _DECLARED.append(library)
        return None


sys.meta_path.insert(0, _BeforeTorchvision())
