// Doubles a tensor on the GPU, and says which CUDA it was compiled with. Needs no GPU to be loaded.
#include <torch/extension.h>

__global__ void twice(float *values, int64_t count) {
  int64_t at = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (at < count) values[at] *= 2;
}

torch::Tensor doubled(torch::Tensor given) {
  TORCH_CHECK(given.is_cuda(), "a tensor on a GPU is needed");
  torch::Tensor made = given.to(torch::kFloat).contiguous().clone();
  int64_t count = made.numel();
  twice<<<(count + 255) / 256, 256>>>(made.data_ptr<float>(), count);
  return made;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("doubled", &doubled);
  module.attr("cuda") = CUDART_VERSION;
}
