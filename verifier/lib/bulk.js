export const bulk = null;
