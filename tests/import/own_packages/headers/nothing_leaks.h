// Included after one of cohort's headers that needs no LibTorch.

#if defined(GLOO_VERSION_MAJOR) || defined(NCCL_MAJOR) || defined(CUDART_VERSION)
#error "a public header of cohort includes one of Gloo, NCCL or CUDA"
#endif
#if defined(C10_API) || defined(TORCH_API)
#error "a public header of cohort that needs no LibTorch includes it"
#endif
#if defined(LOG) || defined(CHECK)
#error "a public header of cohort leaks LOG or CHECK"
#endif
