// Neighbouring elements of a row, moved by one instruction: the alignment is what lets the compiler do so.
#pragma once

template <class Element, int Count>
struct alignas(Count * sizeof(Element)) Neighbours {
    static_assert(Count * sizeof(Element) <= 16, "one instruction moves sixteen bytes");
    Element value[Count];
};

template <int Count, class Element>
__device__ inline Neighbours<Element, Count> load_neighbours(const Element* from) {
    return *reinterpret_cast<const Neighbours<Element, Count>*>(from);
}

template <int Count, class Element>
__device__ inline void store_neighbours(Element* to, const Neighbours<Element, Count>& neighbours) {
    *reinterpret_cast<Neighbours<Element, Count>*>(to) = neighbours;
}
