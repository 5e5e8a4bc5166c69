// The mesh of a stack: named axes whose points are the ranks. The last axis is the one along which rank numbers run.
export interface MeshAxis {
  name: string;
  size: number;
}
export const ranks_of = (mesh: MeshAxis[]) => mesh.reduce((n, a) => n * a.size, 1);
export function coordinates(mesh: MeshAxis[], rank: number): number[] {
  const out: number[] = [];
  for (let i = mesh.length - 1; i >= 0; i--) {
    out[i] = rank % mesh[i].size;
    rank = Math.floor(rank / mesh[i].size);
  }
  return out;
}
// Whose parameter says an axis' size.
export const says: Record<string, string> = { data: "data_parallel", tensor: "tensor_parallel", stage: "pipeline" };
