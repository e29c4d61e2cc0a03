// A vector: elements side by side in memory, moved by one instruction. The alignment is what lets the
// compiler do so.
#pragma once

template <class Element, int Count>
struct alignas(Count * sizeof(Element)) Vector {
    static_assert(Count * sizeof(Element) <= 16, "one instruction moves sixteen bytes");
    Element value[Count];
};

template <int Count, class Element>
__device__ inline Vector<Element, Count> load_vector(const Element* from) {
    return *reinterpret_cast<const Vector<Element, Count>*>(from);
}

template <int Count, class Element>
__device__ inline void store_vector(Element* to, const Vector<Element, Count>& vector) {
    *reinterpret_cast<Vector<Element, Count>*>(to) = vector;
}
