// Values at points inside cells, from the values at each cell's 8 corners. Contiguous arrays:
//   feats (n, 8, f)   f values at each corner; corner 4 iu + 2 iv + iw is at (iu, iv, iw)
//   points (n, 3)     where in its cell, each coordinate from -1 (index 0) to 1 (index 1);
//                     outside, the same formula extrapolates
//   out (n, f)        the interpolated values
// grad is the gradient of out, dfeats that of feats, dpoints that of points.
#pragma once

#include "kernels/shared/common.h"

template <class T>
void trilinear_interpolation(Cpu where, T* out, const T* feats, const T* points, int64_t n,
                             int64_t f);

template <class T>
void trilinear_interpolation(Cuda where, T* out, const T* feats, const T* points, int64_t n,
                             int64_t f);

template <class T>
void trilinear_interpolation_feats_backward(Cpu where, T* dfeats, const T* grad, const T* points,
                                            int64_t n, int64_t f);

template <class T>
void trilinear_interpolation_feats_backward(Cuda where, T* dfeats, const T* grad, const T* points,
                                            int64_t n, int64_t f);

template <class T>
void trilinear_interpolation_points_backward(Cpu where, T* dpoints, const T* grad, const T* feats,
                                             const T* points, int64_t n, int64_t f);

template <class T>
void trilinear_interpolation_points_backward(Cuda where, T* dpoints, const T* grad, const T* feats,
                                             const T* points, int64_t n, int64_t f);
