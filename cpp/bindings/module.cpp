// The Python module `l2route._core`. Its functions check shapes, release the GIL and call the core.
// The Python layer, which alone calls this module, has checked the values of arrays (ids, padding,
// finite floats); only the values of queries are checked here.
#include "bindings/module.hpp"

#include "bindings/without_gil.hpp"

NB_MODULE(_core, m) {
  l2route::Interpreter::own().attach();
  m.doc() = "C++ core of l2route: counted scorers, beam search, pruning and rollouts.";
  l2route::bind_search(m);
  l2route::bind_stream(m);
  l2route::bind_build(m);
  l2route::bind_learn(m);
  l2route::bind_json(m);
}
