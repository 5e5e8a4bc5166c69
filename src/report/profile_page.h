// A profile as one page that opens in any browser, without a network.
#pragma once
#include <string>
#include <vector>

#include "report/profile_report.h"

namespace adjoint {

struct Picture {
  std::string title;
  std::string svg;  // the text of a whole <svg>
};
std::string profile_page(const Profile& profile, const std::vector<Picture>& pictures);

}  // namespace adjoint
