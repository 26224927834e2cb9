// Compiles against the headers of CUDA, cuDNN and NCCL, and prints which versions they are of. Calls nothing.
#include <cstdio>
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <cudnn.h>
#include <cusolverDn.h>
#include <cusparse.h>
#include <nccl.h>
#include <nvrtc.h>
#include <thrust/sort.h>

__global__ void nothing() {}

int main() {
  std::printf("{\"cuda\": %d, \"cudnn\": \"%d.%d.%d\", \"nccl\": %d}\n", CUDART_VERSION, CUDNN_MAJOR, CUDNN_MINOR,
              CUDNN_PATCHLEVEL, NCCL_VERSION_CODE);
}
