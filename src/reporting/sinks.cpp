#include "trainer/events.h"

namespace trainer::reporting {

SinkRegistry& sink_registry() {
  static SinkRegistry of_plugins("sink");
  return of_plugins;
}

}  // namespace trainer::reporting
