// float16 and bfloat16: types, conversions, arithmetic and comparisons are the toolkit's own headers, with
// the true rounding. What these keep for nvcc is added here, rounded once from float or double.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math.h>

inline __half __hfma(__half a, __half b, __half c) {
  return __double2half(static_cast<double>(__half2float(a)) * __half2float(b) + __half2float(c));
}
inline __nv_bfloat16 __hfma(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c) {
  return __double2bfloat16(static_cast<double>(__bfloat162float(a)) * __bfloat162float(b) +
                           __bfloat162float(c));
}
inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) {
  return __halves2half2(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y));
}
inline __nv_bfloat162 __hfma2(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c) {
  return __halves2bfloat162(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y));
}

inline __half hexp(__half a) { return __float2half_rn(expf(__half2float(a))); }
inline __half hexp2(__half a) { return __float2half_rn(exp2f(__half2float(a))); }
inline __half hlog(__half a) { return __float2half_rn(logf(__half2float(a))); }
inline __half hlog2(__half a) { return __float2half_rn(log2f(__half2float(a))); }
inline __half hsqrt(__half a) { return __float2half_rn(sqrtf(__half2float(a))); }
inline __half hrsqrt(__half a) { return __float2half_rn(1.f / sqrtf(__half2float(a))); }
inline __half hrcp(__half a) { return __float2half_rn(1.f / __half2float(a)); }
inline __half hsin(__half a) { return __float2half_rn(sinf(__half2float(a))); }
inline __half hcos(__half a) { return __float2half_rn(cosf(__half2float(a))); }
inline __half hfloor(__half a) { return __float2half_rn(floorf(__half2float(a))); }
inline __half hceil(__half a) { return __float2half_rn(ceilf(__half2float(a))); }
inline __half hrint(__half a) { return __float2half_rn(nearbyintf(__half2float(a))); }
inline __half htanh(__half a) { return __float2half_rn(tanhf(__half2float(a))); }

inline __nv_bfloat16 hexp(__nv_bfloat16 a) { return __float2bfloat16_rn(expf(__bfloat162float(a))); }
inline __nv_bfloat16 hexp2(__nv_bfloat16 a) { return __float2bfloat16_rn(exp2f(__bfloat162float(a))); }
inline __nv_bfloat16 hlog(__nv_bfloat16 a) { return __float2bfloat16_rn(logf(__bfloat162float(a))); }
inline __nv_bfloat16 hlog2(__nv_bfloat16 a) { return __float2bfloat16_rn(log2f(__bfloat162float(a))); }
inline __nv_bfloat16 hsqrt(__nv_bfloat16 a) { return __float2bfloat16_rn(sqrtf(__bfloat162float(a))); }
inline __nv_bfloat16 hrsqrt(__nv_bfloat16 a) { return __float2bfloat16_rn(1.f / sqrtf(__bfloat162float(a))); }
inline __nv_bfloat16 hrcp(__nv_bfloat16 a) { return __float2bfloat16_rn(1.f / __bfloat162float(a)); }
inline __nv_bfloat16 hsin(__nv_bfloat16 a) { return __float2bfloat16_rn(sinf(__bfloat162float(a))); }
inline __nv_bfloat16 hcos(__nv_bfloat16 a) { return __float2bfloat16_rn(cosf(__bfloat162float(a))); }
inline __nv_bfloat16 hfloor(__nv_bfloat16 a) { return __float2bfloat16_rn(floorf(__bfloat162float(a))); }
inline __nv_bfloat16 hceil(__nv_bfloat16 a) { return __float2bfloat16_rn(ceilf(__bfloat162float(a))); }
inline __nv_bfloat16 hrint(__nv_bfloat16 a) { return __float2bfloat16_rn(nearbyintf(__bfloat162float(a))); }
inline __nv_bfloat16 htanh(__nv_bfloat16 a) { return __float2bfloat16_rn(tanhf(__bfloat162float(a))); }
