// Every source of kernels, as the host compiles it.
#define SPLASH_QUALIFIERS "../host/qualifiers.h"
namespace splash_kernels { namespace {
#include "../kernels/accept.metal"
#include "../kernels/attention.metal"
#include "../kernels/conv.metal"
#include "../kernels/draft.metal"
#include "../kernels/gdn.metal"
#include "../kernels/hadamard.metal"
#include "../kernels/hyper.metal"
#include "../kernels/moe.metal"
#include "../kernels/ngram.metal"
#include "../kernels/norm.metal"
#include "../kernels/project.metal"
#include "../kernels/qsa.metal"
#include "../kernels/rows.metal"
#include "../kernels/sampling.metal"
#include "../kernels/selector.metal"
} } // namespace splash_kernels
