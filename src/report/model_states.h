// Model states of one rank, by the kinds of which the literature writes (Rajbhandari et al., 2019):
// master weights and optimizer state lie there for the whole step; 16-bit or gathered copies of
// weights and gradients of weights come and go, so of them the most that is there at once counts.
#pragma once
#include <nlohmann/json.hpp>

#include "plan/plan.h"

namespace adjoint {

struct ModelStates {
  Bytes parameters = {0}, optimizer = {0};  // held, on the device and on the host
  Bytes copies = {0}, gradients = {0};      // the most at once, each by itself
  Bytes transient = {0};                    // the most of both together
  Bytes all() const { return parameters + optimizer + transient; }
};
ModelStates model_states(const Scheme& step, const Plan& plan);
nlohmann::json model_states_json(const ModelStates& states);

}  // namespace adjoint
