"""The core compiled for ARM on any machine, and its kernels run on an emulated processor."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from unicorn import UC_ARCH_ARM64, UC_MODE_ARM, Uc
from unicorn.arm64_const import (
    UC_ARM64_REG_CPACR_EL1,
    UC_ARM64_REG_LR,
    UC_ARM64_REG_SP,
    UC_ARM64_REG_X0,
)

ROOT = Path(__file__).parent.parent
KERNELS = (
    "l2 float32",
    "ip float32",
    "l2 float16",
    "ip float16",
    "ip codes",
    "ip half codes",
    "ip quarter codes",
)
"""The kernels of arm_kernels.cpp, in its order."""
PAGE = 1 << 16
MEMORY, MEMORY_SIZE = 1 << 32, 1 << 24
"""Memory for arguments, from its start, and the stack, from its end."""
HOME = 1 << 40
"""Return address of the function."""


def compile_for_arm(source: Path, target: Path, *options: str) -> None:
    """Compile a C++ file for ARM; warnings are errors."""
    flags = ("-std=c++20", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'cpp'}", "-c")
    _zig(target.parent, "c++", *flags, *options, str(source), "-o", str(target))


def link_for_arm(source: Path, target: Path, entry: str) -> None:
    """Link a program without libraries whose entry point is a function."""
    flags = ("-static", "-nostdlib", f"-Wl,-e,{entry}")
    _zig(target.parent, "cc", *flags, str(source), "-o", str(target))


def _zig(cache: Path, command: str, *words: str) -> None:
    caches = {f"ZIG_{kind}_CACHE_DIR": str(cache / "zig") for kind in ("GLOBAL", "LOCAL")}
    subprocess.run(
        [sys.executable, "-m", "ziglang", command, "-target", "aarch64-linux-musl", *words],
        check=True,
        env=os.environ | caches,
    )


class Processor:
    """An emulated ARM processor with a program, an ELF file of one function."""

    def __init__(self, program: bytes) -> None:
        self.machine = Uc(UC_ARCH_ARM64, UC_MODE_ARM)
        self.machine.reg_write(UC_ARM64_REG_CPACR_EL1, 0b11 << 20)  # enables floats and SIMD
        self.machine.mem_map(MEMORY, MEMORY_SIZE)
        self.machine.mem_map(HOME, PAGE)
        self.entry, headers = struct.unpack_from("<QQ", program, 24)
        size, n = struct.unpack_from("<HH", program, 54)
        for place in range(headers, headers + n * size, size):
            kind, _, offset, address, _, in_file, in_memory = struct.unpack_from(
                "<IIQQQQQ", program, place
            )
            if kind == 1:  # PT_LOAD
                self._load(address, program[offset : offset + in_file], in_memory)

    def _load(self, address: int, content: bytes, size: int) -> None:
        first, last = address // PAGE, (address + size - 1) // PAGE  # segments share no page
        self.machine.mem_map(first * PAGE, (last - first + 1) * PAGE)
        self.machine.mem_write(address, content)

    def call(self, *arguments: int | NDArray[Any]) -> None:
        """Call the function with numbers and arrays; its writes are copied back to the arrays."""
        places: dict[int, NDArray[Any]] = {}
        free = MEMORY
        for i, argument in enumerate(arguments):
            value = argument
            if isinstance(argument, np.ndarray):
                value, free = free, free + PAGE * (1 + argument.nbytes // PAGE)
                places[value] = argument
                self.machine.mem_write(value, argument.tobytes())
            self.machine.reg_write(UC_ARM64_REG_X0 + i, value)
        self.machine.reg_write(UC_ARM64_REG_SP, MEMORY + MEMORY_SIZE)
        self.machine.reg_write(UC_ARM64_REG_LR, HOME)
        self.machine.emu_start(self.entry, HOME)
        for place, array in places.items():
            read = self.machine.mem_read(place, array.nbytes)
            array[...] = np.frombuffer(read, array.dtype).reshape(array.shape)
