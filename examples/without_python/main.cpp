// Runs a model that AOTInductor has compiled: main model.pt2
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <iostream>

int main(int, char** arguments) {
  torch::inductor::AOTIModelPackageLoader model(arguments[1]);
  const at::Tensor a = at::arange(4, at::kFloat), b = at::ones(4);
  std::cout << model.run({a, b})[0] << std::endl;
}
