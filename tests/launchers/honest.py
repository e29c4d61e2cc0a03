# The product, on the stream that is given. DLPack shows each buffer as it is.
# Expected: ok
# Defence: none is needed

from cuda.core.utils import StridedMemoryView
from products import product, stream_at


def launcher(problem, buffers, sizes, scalars, stream):
    for name in "abc":
        view = StridedMemoryView.from_dlpack(buffers[name], stream_ptr=-1)
        assert view.ptr == buffers[name].pointer
        assert view.shape == buffers[name].shape
    return product(buffers, sizes, stream_at(stream))
