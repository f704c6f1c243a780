"""Made the files beside it, with Python's torch 2.14: python3 make.py, in this folder."""

import collections

import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))


tied = torch.arange(6.0)
state = {
    "none": None,
    "true": True,
    "false": False,
    "ints": [0, 255, 256, 65535, 65536, -1, 2**31, -(2**31), 2**62, -(2**63), 2**63 - 1],
    "floats": [0.1, -0.0, float("inf"), 1e-310],
    "complex": 1 + 2j,
    "text": "snow\u2603\n",
    "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)],
    "empty": [[], {}],
    5: "an int as key",
    "size": torch.Size([2, 3]),
    "device": torch.device("cuda", 1),
    "parameter": torch.nn.Parameter(torch.ones(2)),
    "tied": tied,
    "tied again": tied,
    "transposed": tied.view(2, 3).t(),
    "slice": tied[4:],
    "ordered": collections.OrderedDict(a=1),
    "conj": torch.tensor([1 + 2j]).conj(),
    "float8": torch.ones(2, dtype=torch.float8_e5m2),
    "none at all": torch.zeros(0, 3),
    "scalar": torch.tensor(1.5),
}
torch.save(state, "everything.pt")
torch.save(state, "everything_protocol1.pt", pickle_protocol=1)
torch.save(state, "everything_protocol4.pt", pickle_protocol=4)

module = Net()
torch.save(module.state_dict(), "module_state.pt")
torch.serialization.set_crc32_options(False)
torch.save(module.state_dict(), "no_checksums.pt")
torch.serialization.set_crc32_options(True)

torch.save(torch.nn.Identity(), "module.pt")
torch.save(module.state_dict(), "legacy.pt", _use_new_zipfile_serialization=False)
script = torch.jit.ScriptModule()
script.define("def forward(self, x):\n    return x + 1\n")
script.save("torchscript.pt")
torch.save({"a": [torch.eye(2).to_sparse()]}, "sparse.pt")
torch.save({"a": [torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)]}, "quantized.pt")
torch.save({"a": [torch.empty(2, device="meta")]}, "meta.pt")
