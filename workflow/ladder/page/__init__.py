"""The page: one HTML file to explore the tables with, from any static host or from a folder."""
