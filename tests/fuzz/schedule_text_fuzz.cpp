// A user's schedule. One that is taken prints as a text that is the same schedule.
#include "fuzz/fuzz_target.h"
#include "schedules/schedule.h"

namespace adjoint {

FUZZ_TARGET(schedule_text) {
  const Schedule schedule = parse_schedule(input, "my.schedule");
  const std::string printed = print(schedule);
  bool same = false;
  refuse_or([&] { same = parse_schedule(printed, "printed.schedule") == schedule; });
  CHECK(same, "printed otherwise than read:\n" + printed);
}

}  // namespace adjoint
