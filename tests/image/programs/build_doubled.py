"""A CUDA extension as people write it; TORCH_CUDA_ARCH_LIST says for which GPU."""

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

setup(
    name="doubled",
    ext_modules=[CUDAExtension("doubled", ["doubled.cu"])],
    cmdclass={"build_ext": BuildExtension},
)
