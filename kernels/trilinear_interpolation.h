// Values at points inside cells, from the values at each cell's 8 corners. The arrays are
// contiguous:
//   feats (n, 8, f)   f values at each corner; corner 4 iu + 2 iv + iw is at (iu, iv, iw)
//   points (n, 3)     positions in the cells, each coordinate from -1 (index 0) to 1 (index 1);
//                     outside that range the same formula extrapolates
//   out (n, f)        the interpolated values
// grad is the gradient of out, dfeats of feats, dpoints of points.
#pragma once

#include "kernels/shared/common.h"

template <class T>
void trilinear_interpolation(kernels::Cpu where, T* out, const T* feats, const T* points, int64_t n,
                             int64_t f);

template <class T>
void trilinear_interpolation(kernels::Cuda where, T* out, const T* feats, const T* points,
                             int64_t n, int64_t f);

template <class T>
void trilinear_interpolation_feats_backward(kernels::Cpu where, T* dfeats, const T* grad,
                                            const T* points, int64_t n, int64_t f);

template <class T>
void trilinear_interpolation_feats_backward(kernels::Cuda where, T* dfeats, const T* grad,
                                            const T* points, int64_t n, int64_t f);

template <class T>
void trilinear_interpolation_points_backward(kernels::Cpu where, T* dpoints, const T* grad,
                                             const T* feats, const T* points, int64_t n, int64_t f);

template <class T>
void trilinear_interpolation_points_backward(kernels::Cuda where, T* dpoints, const T* grad,
                                             const T* feats, const T* points, int64_t n, int64_t f);
