// What a training step is made with, beside the model's text.
#pragma once
#include <string>

#include "device/target.h"

namespace adjoint {

struct StepOptions {
  std::string optimizer = "adamw";  // sgd, momentum, adamw
  double beta1 = 0.9, beta2 = 0.99, eps = 1e-8;
  double momentum = 0.9;
  double weight_decay = 0.1;  // of matrices and tables
  double clip = 1.0;          // the largest norm of all gradients together; 0: no clipping
  // A step whose loss or gradient is no number changes nothing; nor, above 0, does one whose loss
  // is more than so many times the mean of those before.
  bool guarded = false;
  double spike = 0;
  bool norms = false;            // it also tells the norms of gradients by role
  std::string stack = {};        // functors joined by '|'
  Target target = Target::kCpu;  // whose kernels run it
  bool deterministic = false;    // and with the same bits every time
  // Whether the mesh that a stack says is realized. Where it is not, one rank does all the work:
  // what is generated, merged or converted is the same on any mesh.
  bool on_mesh = false;
  // How many ranks there are, for functors that take those which others leave; 0: nobody said.
  int ranks = 0;
  // The verifier looks at what every functor made; else at the whole step alone, which is what
  // those want who build many steps to choose one of them.
  bool verify_each = true;
};

}  // namespace adjoint
