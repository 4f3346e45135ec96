// Long functions of the page: `.ci/check page-functions`.
const lines = { max: 80, skipBlankLines: true, skipComments: true };

export default [
  { ignores: ["**/target/**"] },
  { files: ["**/*.js", "**/*.mjs"], rules: { "max-lines-per-function": ["error", lines] } },
];
